"""Models by their name on the hub, from a few lines of server that answer as the hub does."""

import hashlib
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from specnotes.pair import fetch, load_pair
from tests.test_pair import change, write_bpe, write_folder, write_shards

COMMIT, NEXT = (hashlib.sha1(text).hexdigest() for text in (b"the first commit", b"the next one"))
SCRIPT = """
import json, sys
from specnotes.pair import load_pair
pair = load_pair(*sys.argv[1:], dtype="float64")
print(json.dumps([model.forward([1, 2]).logits.tolist() for model in pair[:2]] + [pair.tokenizer.encode("c").ids]))
"""


class Answer(BaseHTTPRequestHandler):
    """A repository's commit, its list of files and the files; old names and weights are redirected, as on the hub."""

    def do_GET(self):
        server, (path, _, _) = self.server, self.path.partition("?")
        server.asked.append((self.command, path))
        kind, repo, rest = self.parse(path)
        if repo in server.moved:
            return self.send(307, {"Location": self.path.replace(f"/{repo}/", f"/{server.moved[repo]}/", 1)})
        if repo not in server.folders:
            return self.send(401, {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"})
        files = {file.name: file.read_bytes() for file in server.folders[repo].iterdir()}
        if kind == "revision":
            commit = server.commits.get(repo, []).pop(0) if path.endswith("/main") else path.rpartition("/")[2]
            return self.send_json({"id": repo, "sha": commit, "siblings": [{"rfilename": name} for name in files]})
        if kind == "tree":
            return self.send_json([{"type": "file", "path": name, "size": len(data), "oid": etag(data)}
                                   for name, data in files.items()])
        self.send_file(kind, repo, *rest.split("/"), files)

    do_HEAD = do_GET

    def parse(self, path):
        """Kind, repository and file of [/api/models]/REPO/KIND/REVISION[/FILE]."""
        path = path.removeprefix("/api/models").removeprefix("/storage")
        for kind in ("revision", "tree", "resolve", "raw"):
            repo, found, rest = path.strip("/").partition(f"/{kind}/")
            if found:
                return kind, repo, rest
        return None, None, None

    def send_file(self, kind, repo, commit, name, files):
        if name not in files:
            return self.send(404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit})
        data, headers = files[name], {"X-Repo-Commit": commit, "ETag": f'"{etag(files[name])}"'}
        if kind == "resolve" and name.endswith(".safetensors"):
            linked = {"X-Linked-Size": str(len(data)), "X-Linked-Etag": headers["ETag"]}
            return self.send(302, headers | linked | {"Location": f"/storage/{repo}/raw/{commit}/{name}"})
        self.send(200, headers, data)

    def send_json(self, value):
        self.send(200, {"Content-Type": "application/json"}, json.dumps(value).encode())

    def send(self, status, headers, data=b""):
        self.send_response(status)
        for name, value in (headers | {"Content-Length": str(len(data))}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    def log_message(self, *arguments):
        pass


def etag(data):
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def hub(tmp_path):
    """A hub with two models, each also known by a shorter name: one in parts, one with vocab.json and merges.txt."""
    pytest.importorskip("huggingface_hub", reason="names on the hub need huggingface_hub (extra: hub)")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    server.asked, server.folders = [], {}
    server.moved = {"gpt2-medium": "openai-community/gpt2-medium", "distilgpt2": "distilbert/distilgpt2"}
    for seed, repo in enumerate(server.moved.values()):
        server.folders[repo] = write_folder(tmp_path / repo.partition("/")[2], seed=seed)
        (server.folders[repo] / "pytorch_model.bin").write_bytes(b"not needed")
        (server.folders[repo] / "model.fp16.safetensors").write_bytes(b"not needed")
    server.commits = {repo: [COMMIT, NEXT, NEXT] for repo in server.folders}
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def client(hub, tmp_path, command, **settings):
    """Run Python with its hub cache under tmp_path and `hub` as the hub."""
    kept = {name: value for name, value in os.environ.items() if not name.upper().startswith(("HF_", "HUGGING"))}
    address = f"http://{hub.server_address[0]}:{hub.server_address[1]}"
    own = {"HF_HOME": str(tmp_path / "cache"), "HF_ENDPOINT": address, "NO_PROXY": "*", "no_proxy": "*"}
    env = kept | own | settings
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=120, env=env)


def load(hub, tmp_path, *names, **settings):
    return client(hub, tmp_path, ["-c", SCRIPT, *names], **settings)


def downloaded(hub):
    """{(repository, file)} of everything whose content was sent."""
    gets = [path.removeprefix("/storage/") for method, path in hub.asked if method == "GET" and "/api/" not in path]
    return {tuple(path.strip("/").replace("/raw/", "/resolve/").split(f"/resolve/{COMMIT}/")) for path in gets}


def test_a_pair_loads_by_its_names_on_the_hub_and_only_what_is_needed_is_fetched(hub, tmp_path):
    target, draft = hub.folders.values()
    write_shards(target)
    for folder in (target, draft):
        write_bpe(folder)
    (draft / "tokenizer.json").unlink()
    done = load(hub, tmp_path, "gpt2-medium", "distilbert/distilgpt2")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for logits, folder in zip(found, (target, draft)):
        np.testing.assert_array_equal(logits, load_pair(folder, folder, "float64").target.forward([1, 2]).logits)
    assert found[2] == [2]
    shards = {path.name for path in target.glob("model-*")}
    assert len(shards) > 1
    fetched = downloaded(hub)
    assert {name for repo, name in fetched if repo.endswith("gpt2-medium")} == shards | {
        "config.json", "model.safetensors.index.json", "tokenizer.json"}
    assert {name for repo, name in fetched if repo.endswith("distilgpt2")} == {
        "config.json", "model.safetensors", "vocab.json", "merges.txt"}


def test_all_files_of_a_model_are_of_one_commit(hub, tmp_path):
    """The model gets a new version while it is fetched: what comes later belongs to what came first."""
    done = load(hub, tmp_path, "gpt2-medium", "distilgpt2")
    assert done.returncode == 0, done.stderr
    assert len(downloaded(hub)) == 6 and not [path for _, path in hub.asked if NEXT in path]


def test_what_was_fetched_once_needs_no_network(hub, tmp_path):
    first = load(hub, tmp_path, "gpt2-medium", "distilgpt2")
    assert first.returncode == 0, first.stderr
    asked = len(hub.asked)
    again = load(hub, tmp_path, "gpt2-medium", "distilgpt2", HF_HUB_OFFLINE="1")
    assert again.stdout == first.stdout and len(hub.asked) == asked
    elsewhere = load(hub, tmp_path, "gpt2-medium", "distilgpt2", HF_ENDPOINT="http://127.0.0.1:9")
    assert elsewhere.stdout == first.stdout


@pytest.mark.parametrize(("names", "settings", "words"), [
    (("nobody/nothing",), {}, "target: no folder 'nobody/nothing', and no public model of that name"),
    (("gpt2-medium",), {"HF_HUB_OFFLINE": "1"}, "target: no folder 'gpt2-medium', and the hub gave nothing"),
    (("gpt2-medium",), {"HF_ENDPOINT": "http://127.0.0.1:9"}, "target: no folder 'gpt2-medium', and the hub"),
    (("a--b",), {}, "target: no folder 'a--b', and the hub gave nothing"),
])
def test_a_name_that_brings_nothing_is_one_readable_line(hub, tmp_path, names, settings, words):
    done = client(hub, tmp_path, ["-m", "specnotes", "generate", "x", "--target", *names], **settings)
    assert done.returncode == 2 and done.stdout == "" and len(done.stderr.strip().splitlines()) == 1
    assert words in done.stderr


def test_of_another_architecture_only_the_small_files_are_fetched(hub, tmp_path):
    change(hub.folders["distilbert/distilgpt2"], model_type="llama")
    done = load(hub, tmp_path, "gpt2-medium", "distilgpt2")
    assert "ValueError: draft: " in done.stderr and "model_type 'llama', expected 'gpt2'" in done.stderr
    assert {name for repo, name in downloaded(hub) if "distil" in repo} == {"config.json", "tokenizer.json"}


def test_a_model_without_safetensors_is_refused(hub, tmp_path):
    (hub.folders["distilbert/distilgpt2"] / "model.safetensors").unlink()
    done = load(hub, tmp_path, "gpt2-medium", "distilgpt2")
    assert "ValueError: draft: " in done.stderr and "lacks model.safetensors" in done.stderr


def test_without_the_extra_the_error_names_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ValueError, match=r"^target: no folder 'gpt2-medium', .* pip install specnotes\[hub\]$"):
        load_pair("gpt2-medium")


@pytest.mark.parametrize("name", ["", "a/b/c", "no such folder", "x" * 97, "../gpt2", "~", None, 5])
def test_what_can_be_no_name_on_the_hub_is_never_asked_for(monkeypatch, name):
    monkeypatch.setattr("specnotes.pair._download", lambda *arguments: pytest.fail("the hub was asked"))
    with pytest.raises(ValueError, match="^no folder "):
        fetch(name)


def test_a_folder_comes_before_a_name_on_the_hub(tmp_path, monkeypatch):
    write_folder(tmp_path / "gpt2")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("specnotes.pair._download", lambda *arguments: pytest.fail("the hub was asked"))
    assert load_pair("gpt2", "gpt2").target.vocab_size == 13


def test_nothing_of_the_hub_is_imported_for_folders():
    code = "import sys; from specnotes.pair import load_pair; load_pair(); print('huggingface_hub' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60).stdout == "False\n"

"""The command line as a person meets it: a process, its output, its exit code."""

import json
import os
import subprocess
import sys

import pytest

PROMPT = "PROSPERO.\nOur revels now are ended."


def run(*arguments):
    return subprocess.run([sys.executable, "-m", "specnotes", *arguments], capture_output=True, text=True, timeout=120)


def record(*arguments):
    done = run("generate", PROMPT, "--json", *arguments)
    assert done.returncode == 0 and done.stderr == ""
    return json.loads(done.stdout)


def test_greedy_text_is_the_same_with_and_without_drafts():
    settings = ("--temperature", "0", "--max-new-tokens", "60", "--dtype", "float64")
    fast, plain = record(*settings), record(*settings, "--gamma", "0")
    assert fast["text"] == plain["text"] and fast["tokens"] == plain["tokens"]
    assert plain["tokens_per_pass"] == 1 and fast["tokens_per_pass"] > 1
    assert set(plain["kinds"]) == {"bonus"} and plain["alpha"] is None


def test_in_float32_greedy_text_differs_only_where_a_near_tie_is_reported():
    settings = ("--temperature", "0", "--max-new-tokens", "120")
    fast, plain = record(*settings), record(*settings, "--gamma", "0")
    differing = [i for i, pair in enumerate(zip(fast["tokens"], plain["tokens"])) if pair[0] != pair[1]]
    ties = {tie["position"] for tie in fast["near_ties"] + plain["near_ties"]}
    assert len(fast["tokens"]) == len(plain["tokens"]) == 120
    assert not differing or differing[0] in ties


def test_json_has_tokens_kinds_and_tokens_per_pass_that_agree():
    found = record("--max-new-tokens", "30", "--seed", "5")
    assert len(found["tokens"]) == len(found["kinds"]) == 30
    assert found["tokens_per_pass"] == 30 / found["passes"] and found["seed"] == 5
    assert set(found["kinds"]) <= {"accepted", "recovered", "bonus"}
    assert found == record("--max-new-tokens", "30", "--seed", "5")


def test_the_printed_text_shows_kinds_and_tokens_per_pass():
    done = run("generate", PROMPT, "--max-new-tokens", "20", "--seed", "1")
    found = record("--max-new-tokens", "20", "--seed", "1")
    assert done.returncode == 0 and done.stderr == ""
    assert PROMPT + found["text"] in done.stdout
    assert "b bonus): " + "".join(kind[0] for kind in found["kinds"]) in done.stdout
    assert f"{found['tokens_per_pass']:.2f} tokens per pass" in done.stdout and "\033" not in done.stdout


def test_a_greedy_run_names_no_seed():
    assert record("--temperature", "0", "--max-new-tokens", "5")["seed"] is None
    assert "seed" not in run("generate", PROMPT, "--temperature", "0", "--max-new-tokens", "5").stdout


def test_the_version_is_that_of_the_package():
    from specnotes import __version__

    assert run("--version").stdout == f"specnotes {__version__}\n"


def test_a_context_that_ends_is_said():
    done = run("generate", PROMPT, "--max-new-tokens", "2000", "--seed", "1")
    assert done.returncode == 0 and "the context of 512 tokens is full" in done.stdout


@pytest.mark.parametrize(
    "arguments, word",
    [
        (("generate", ""), "prompt"),
        (("generate",), "prompt"),
        (("generate", "x", "--bad"), "--bad"),
        (("generate", "word " * 600), "prompt"),
        (("generate", "x", "--gamma", "-1"), "gamma"),
        (("generate", "x", "--gamma", "two"), "--gamma"),
        (("generate", "x", "--temperature", "-1"), "temperature"),
        (("generate", "x", "--temperature", "nan"), "temperature"),
        (("generate", "x", "--max-new-tokens", "-5"), "max_new_tokens"),
        (("generate", "x", "--top-p", "0"), "top_p"),
        (("generate", "x", "--top-k", "0"), "top_k"),
        (("generate", "x", "--seed", "-1"), "seed"),
        (("generate", "x", "--target", "no/such/folder"), "no/such/folder"),
        (("measure", "--gamma", "9"), "gamma"),
        (("measure", "--tokens", "1"), "tokens"),
        (("measure", "--tokens", "5", "--gamma", "4"), "tokens"),
        (("measure", "--seed", "-1"), "seed"),
        (("generate", "x", "--target", "x" * 300), "target"),
        (("generate", b"\xff"), "prompt"),
        (("dance",), "dance"),
        (("generate", "x", "--drafter", "medusa", "--gamma", "7"), "gamma: 7, expected at most 4"),
        (("generate", "x", "--drafter", "medusa", "--tree", "--nodes", "10", "--temperature", "0"), "nodes: 10, expected one of 4, 8, 16, 32"),
        ((), "generate,measure"),
    ],
)
def test_bad_input_ends_with_one_readable_line_and_code_2(arguments, word):
    done = run(*arguments)
    assert done.returncode == 2 and done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1
    assert word in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("command", [(), ("generate",), ("measure",)])
def test_help_is_there(command):
    done = run(*command, "--help")
    assert done.returncode == 0 and "usage: python -m specnotes" in done.stdout


def test_measure_prints_a_record():
    done = run("measure", "--gamma", "1", "--tokens", "12", "--repeats", "1", "--json")
    assert done.returncode == 0 and done.stderr == ""
    found = json.loads(done.stdout)
    assert {"alpha", "c", "verify_cost", "machine", "rows"} <= found.keys() and len(found["rows"]) == 2


def test_a_reader_that_leaves_early_hears_no_complaint():
    writer = subprocess.Popen(
        [sys.executable, "-m", "specnotes", "generate", "x", "--max-new-tokens", "5"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "PYTHONUNBUFFERED": ""},
    )
    writer.stdout.close()
    assert writer.stderr.read() == b"" and writer.wait(60) == 141


def test_a_letter_the_terminal_lacks_does_not_lose_the_text():
    done = subprocess.run(
        [sys.executable, "-m", "specnotes", "generate", "caf\u00e9", "--max-new-tokens", "3", "--seed", "1"],
        capture_output=True, text=True, timeout=120, env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    assert done.returncode == 0 and "caf\\xe9" in done.stdout


def test_a_measurement_stopped_by_ctrl_c_prints_what_is_finished(monkeypatch, capsys):
    from specnotes import __main__, measure

    real = measure.paired_runs

    def interrupted(*args):
        yield next(real(*args))
        raise KeyboardInterrupt

    monkeypatch.setattr(measure, "paired_runs", interrupted)
    with pytest.raises(SystemExit) as stopped:
        __main__.main(["measure", "--gamma", "1", "--tokens", "12", "--repeats", "1"])
    out, err = capsys.readouterr()
    assert stopped.value.code == 130 and "1 groups of runs" in out and "stopped after 1 of" in err


def test_all_drafters_are_compared_in_one_table():
    done = run("measure", "--drafter", "all", "--tokens", "10", "--repeats", "1")
    assert done.returncode == 0 and done.stderr == ""
    for name in ("draft model, chain of 3", "Medusa, tree of 32", "EAGLE, tree of 8"):
        assert done.stdout.count(name) == 1
    refused = run("measure", "--drafter", "all", "--tree")
    assert refused.returncode == 2 and "tree: True beside the drafter 'all'" in refused.stderr
    assert run("generate", "a", "--drafter", "all").returncode == 2


@pytest.mark.parametrize("closed", ["stdout", "stderr"])
def test_a_closed_stream_is_no_reason_to_fail(closed):
    shell = f"'{sys.executable}' -m specnotes generate hi --drafter medusa --max-new-tokens 3 {'>&-' if closed == 'stdout' else '2>&-'}"
    done = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stderr == "" and bool(done.stdout) == (closed == "stderr")


def test_a_tree_far_too_large_is_cut_to_the_context():
    done = run("generate", "hi", "--drafter", "eagle", "--tree", "--gamma", "100", "--nodes", "1000000000000000000", "--max-new-tokens", "3")
    assert done.returncode == 0 and done.stderr == ""

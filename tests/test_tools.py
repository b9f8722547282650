"""The benchmark and the tool that breaks lines on purpose."""

import ast

from tools import bench, mutation

SOURCE = "def left(p, q):\n    check(p)\n    return max(p - q, 0)\n"


def test_a_source_is_broken_in_every_way_the_tool_knows():
    found = {what: text.splitlines()[1:] for _, what, text in mutation.mutants(SOURCE)}
    assert found == {
        "left out: check(p)": ["    pass", "    return max(p - q, 0)"],
        "check(p) -> p": ["    p", "    return max(p - q, 0)"],
        "p -> q": ["    check(p)", "    return max(q - q, 0)"],
        "q -> p": ["    check(p)", "    return max(p - p, 0)"],
        "max(p - q, 0) -> p - q": ["    check(p)", "    return p - q"],
        "max(p - q, 0): arguments 1 and 2 swapped": ["    check(p)", "    return max(0, p - q)"],
    }


def test_every_broken_source_can_be_compiled_and_differs_from_the_module():
    for name in mutation.CONFIG["module-path"]:
        source = (mutation.ROOT / name).read_text(encoding="utf-8")
        texts = [text for *_, text in mutation.mutants(source)]
        assert len(texts) > 50 and ast.unparse(ast.parse(source)) not in texts
        for text in texts:
            compile(text, name, "exec")


def test_the_timed_laws_are_those_of_the_target():
    # One pass of 3 tokens and gamma 4, and four tokens of the loop: all probability is accounted for.
    assert sum(bench.one_pass().values()) == sum(bench.whole_loop().values()) == 1


def test_a_row_of_the_benchmark_shows_target_median_and_best():
    assert bench.line("a", 0.3, [0.25, 0.5, 0.125]).split() == ["a", "<", "0.300", "s", "0.250", "s", "0.125", "s"]
    assert bench.line("b", 0.016, [0.004]).split() == ["b", "<", "16.0", "ms", "4.0", "ms", "4.0", "ms"]
    assert bench.line("c", 0.016, None).split() == ["c", "<", "16.0", "ms", "no", "Chromium"]

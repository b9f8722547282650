"""The built site in a real browser: no error, nothing from outside, and sliders whose numbers are Python's."""

import dataclasses
import importlib.util
import itertools
import re
from urllib.parse import unquote

import numpy as np
import pytest

from specnotes import distributions, roofline, rules, theory, toy
from specnotes.dice import ScriptedDice
from specnotes.roofline import HARDWARE, MODELS, Hardware, ModelShape
from specnotes.widgets import RooflineExplorer, RuleExplorer, SpeedupExplorer, TreeExplorer, rule, tree
from specnotes.widgets.roofline import described
from specnotes.widgets.base import fill
from tests.book.conftest import ROOT

JS = ROOT / "specnotes" / "widgets" / "js"
THEORY = (JS / "theory.js").read_text(encoding="utf-8")
PHONE = {"viewport": {"width": 360, "height": 740}, "color_scheme": "dark"}
EXPLORERS = {"speedup": SpeedupExplorer, "rule": RuleExplorer, "roofline": RooflineExplorer, "tree": TreeExplorer}


def page_with(site, pages, script):
    """The first page that shows the explorer `script`."""
    for path in pages:
        if f'data-widget="{script}"' in (site / path).read_text(encoding="utf-8"):
            return path
    pytest.fail(f"no page shows the explorer {script!r}")


def settled(page):
    """The page after its math has been typeset and its fonts have come."""
    page.evaluate("() => window.MathJax && MathJax.startup && MathJax.startup.promise.then(() => true)")
    page.evaluate("() => document.fonts.ready.then(() => true)")
    return page


# Pages

UNNAMED = """() => {
  const named = (el) => (el.labels && el.labels.length) || el.getAttribute('aria-label') || el.getAttribute('title')
    || el.getAttribute('aria-labelledby') || el.textContent.trim();
  const all = (selector) => [...document.querySelectorAll(selector)];
  const bad = all('input:not([type=hidden]), select, textarea, button').filter((el) => !named(el));
  const blind = all('img').filter((el) => !el.alt.trim() || /\\.(png|svg|jpe?g)$/.test(el.alt));
  const mute = all('svg[role=img]:not([aria-hidden=true])').filter((el) => !named(el));
  return [...bad, ...blind, ...mute].map((el) => el.outerHTML.slice(0, 160));
}"""


def test_over_http_every_page_loads_cleanly_and_every_control_and_picture_has_a_name(visit, pages):
    unnamed = {}
    for path in pages:
        page = settled(visit(path))
        unnamed[path] = page.evaluate(UNNAMED)
    assert visit.complaints == []
    assert {path: elements for path, elements in unnamed.items() if elements} == {}


def test_from_disk_every_page_loads_cleanly_and_fits_a_phone(visit, pages):
    widths = {}
    for path in pages:
        page = settled(visit(path, "file", **PHONE))
        widths[path] = page.evaluate("document.documentElement.scrollWidth")
    assert visit.complaints == []
    assert {path: width for path, width in widths.items() if width > 360} == {}


@pytest.mark.parametrize("over", ["http", "file"])
def test_the_site_opens_at_a_chapter(visit, pages, addresses, over):
    page = visit("index.html", over)
    page.wait_for_url(lambda url: url.removeprefix(addresses[over]) in pages)
    page.locator("article h1").wait_for()
    assert visit.complaints == []


def test_math_is_typeset_and_carries_mathml_for_screen_readers(visit, site, pages):
    path = next(path for path in pages if 'class="math' in (site / path).read_text(encoding="utf-8"))
    page = settled(visit(path, "file"))
    assert page.locator("mjx-container").count() > 0
    assert page.locator("mjx-container").count() == page.locator("mjx-assistive-mml").count()
    assert page.locator("mjx-merror").count() == 0


def test_the_site_carries_the_explorers_as_they_are_now(site):
    spec = importlib.util.spec_from_file_location("book_site", ROOT / "book" / "_ext" / "site.py")
    glue = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(glue)
    assert (site / "_static" / "explorers.js").read_text(encoding="utf-8") == glue.explorers_script()


def test_launch_buttons_appear_only_with_an_address(site, pages):
    config = (ROOT / "_config.yml").read_text(encoding="utf-8")
    address = re.search(r'^repository:\n  url: "(.*)"$', config, flags=re.MULTILINE).group(1)
    shown = [path for path in pages if "mybinder.org/v2" in (site / path).read_text(encoding="utf-8")]
    assert bool(shown) == bool(address)


# Explorers


def put(slider, value):
    """Move a slider to `value` by keyboard alone: Home or End, then large and small steps."""
    slider.focus()
    press = slider.page.keyboard.press
    low, high, step = slider.evaluate("(input) => [input.min, input.max, input.step].map(Number)")
    up = value - low <= high - value
    press("Home" if up else "End")
    for _ in range(int(abs(value - (low if up else high)) / max(step, (high - low) / 10) + 1e-9)):
        press("PageUp" if up else "PageDown")
    steps = round((value - float(slider.input_value())) / step)
    for _ in range(abs(steps)):
        press("ArrowRight" if steps > 0 else "ArrowLeft")
    assert float(slider.input_value()) == pytest.approx(value, abs=1e-9)


def explorer_on(page, script):
    """The explorer, its sliders by name, and a function that reads its readouts."""
    box = page.locator(f'[data-widget="{script}"]').first
    sliders = {name: box.locator(f'[data-setting="{name}"]') for name in EXPLORERS[script]._settings}

    return box, sliders, box.locator("[data-readout]").all_inner_texts


@pytest.mark.parametrize("over", ["http", "file"])
def test_the_speedup_explorer_starts_at_the_documented_numbers(visit, site, pages, over):
    page = visit(page_with(site, pages, "speedup"), over)
    _, sliders, readouts = explorer_on(page, "speedup")
    for name, value in {"alpha": 0.80, "gamma": 4, "c": 0.05}.items():
        put(sliders[name], value)
    assert readouts() == ["3.36", "2.80×", "8 at 3.09×", "5"]
    assert visit.complaints == []


def test_the_speedup_explorer_shows_what_theory_says_wherever_its_sliders_stand(visit, site, pages):
    page = visit(page_with(site, pages, "speedup"))
    box, sliders, readouts = explorer_on(page, "speedup")
    for alpha in (0.0, 0.5, 0.93, 1.0):
        put(sliders["alpha"], alpha)
        for c in (0.0, 0.05, 1.0):
            put(sliders["c"], c)
            best, gain = theory.best_gamma(alpha, c, 16)
            for gamma in (0, 3, 16):
                put(sliders["gamma"], gamma)
                speedup = f"{theory.speedup(alpha, gamma, c):.2f}"
                tokens = f"{theory.expected_tokens(alpha, gamma):.2f}"
                expected = [tokens, f"{speedup}×", f"{best} at {gain:.2f}×", f"{gamma + 1}"]
                assert readouts() == expected, (alpha, gamma, c)
                assert sliders["gamma"].get_attribute("aria-valuetext") == str(gamma)
                spoken = box.locator("svg[role=img]").get_attribute("aria-label")
                assert f"At γ {gamma} it is {speedup} times" in spoken


def test_the_curve_and_its_marks_stand_where_theory_says(visit, site, pages):
    page = visit(page_with(site, pages, "speedup"))
    box, sliders, _ = explorer_on(page, "speedup")
    for name, value in {"alpha": 0.9, "gamma": 6, "c": 0.1}.items():
        put(sliders[name], value)
    places = "all => all.map((dot) => [dot.getAttribute('cx'), dot.getAttribute('cy')].map(Number))"
    dots = box.locator(".sn-dot").evaluate_all(places)
    one = float(box.locator(".sn-plain").get_attribute("y1"))
    zero = float(box.locator(".sn-drop").get_attribute("y2"))
    drawn = [(zero - y) / (zero - one) for _, y in dots]
    assert drawn == pytest.approx([theory.speedup(0.9, gamma, 0.1) for gamma in range(17)], abs=1e-9)
    assert float(box.locator(".sn-now").get_attribute("cx")) == dots[6][0]
    left = float(re.match(r"M([\d.]+)", box.locator(".sn-best").get_attribute("d")).group(1))
    assert left == pytest.approx(dots[theory.best_gamma(0.9, 0.1, 16)[0]][0], abs=1e-6)


def test_the_rule_explorer_rolls_the_rounds_that_the_shipped_rule_rolls(visit, site, pages):
    page = visit(page_with(site, pages, "rule"))
    box, sliders, readouts = explorer_on(page, "rule")
    for mismatch, gamma, rounds in [(0.6, 4, 4000), (0, 4, 1000), (1, 8, 500), (0.35, 0, 300), (0.6, 1, 100)]:
        for name, value in {"mismatch": mismatch, "gamma": gamma, "rounds": rounds}.items():
            put(sliders[name], value)
        results = RuleExplorer.compute(float(mismatch), gamma, rounds, seed=0)
        assert readouts() == [fill(template, results) for _, template in RuleExplorer.readouts]
        measure = "all => all.map((bar) => Number(bar.getAttribute('height')))"
        heights = {kind: box.locator(f"rect.sn-{kind}").evaluate_all(measure) for kind in ("p", "emitted", "q")}
        scale = heights["p"][0] / results["p"][0]
        for kind, drawn in heights.items():
            assert drawn == pytest.approx([scale * share for share in results[kind]], abs=0.3)
    assert visit.complaints == []


def test_new_dice_change_what_is_measured_and_nothing_else(visit, site, pages):
    page = visit(page_with(site, pages, "rule"))
    box, sliders, readouts = explorer_on(page, "rule")
    put(sliders["mismatch"], 0.6)
    before = readouts()
    box.locator("[data-action=roll]").focus()
    page.keyboard.press("Enter")
    after = readouts()
    results = RuleExplorer.compute(0.6, 4, 4000, seed=1)
    assert after == [fill(template, results) for _, template in RuleExplorer.readouts]
    assert (before[0], before[3]) == (after[0], after[3]) and before[1] != after[1]


def test_the_roofline_explorer_shows_what_the_package_computes_wherever_it_stands(visit, site, pages):
    page = visit(page_with(site, pages, "roofline"))
    box, controls, readouts = explorer_on(page, "roofline")
    spots = [("A100-80GB-SXM", "7B", 30, 0, 4, 0.8, 0.05), ("H200", "70B", 256, 16384, 16, 1.0, 0.0),
             ("T4", "13B", 1, 1024, 0, 0.0, 1.0), ("B200", "gpt2", 100, 128, 7, 0.65, 0.1)]
    for hardware, model, *rest in spots:
        controls["hardware"].select_option(hardware)
        controls["model"].select_option(model)
        settings = dict(zip(("batch", "context", "gamma", "alpha", "c"), rest))
        for name, value in settings.items():
            put(controls[name], value)
        results = RooflineExplorer.compute(hardware, model, **settings)
        expected = [fill(template, results) for _, template in RooflineExplorer.readouts]
        assert readouts() == expected, (hardware, model, rest)
        spoken = box.locator("svg[role=img]").get_attribute("aria-label")
        assert f"bound by {results['verify']['bound']}" in spoken and f"at batch {settings['batch']}" in spoken
    assert visit.complaints == []


def test_the_lists_of_the_roofline_explorer_work_by_keyboard_alone(visit, site, pages):
    page = visit(page_with(site, pages, "roofline"))
    _, controls, _ = explorer_on(page, "roofline")
    controls["hardware"].focus()
    page.keyboard.type("L40S")
    assert controls["hardware"].input_value() == "L40S"
    page.keyboard.press("Tab")
    assert controls["model"].evaluate("(select) => select === document.activeElement")


def test_the_roofline_explorer_draws_its_points_on_the_roof_and_its_crossover_where_it_is(visit, site, pages):
    page = visit(page_with(site, pages, "roofline"))
    box, controls, _ = explorer_on(page, "roofline")
    controls["hardware"].select_option("A100-80GB-SXM")
    controls["model"].select_option("7B")
    for name, value in {"batch": 64, "context": 0, "gamma": 4, "alpha": 0.8, "c": 0.05}.items():
        put(controls[name], value)
    place = "(all) => all.map((one) => [one.getAttribute('cx'), one.getAttribute('cy')].map(Number))"
    (_, high), (_, at_batch) = box.locator(".sn-now").evaluate_all(place)
    corners = [tuple(map(float, pair.split(","))) for pair in box.locator(".sn-roof").get_attribute("points").split()]
    assert high == pytest.approx(corners[-1][1], abs=0.2)  # 64 texts of 5 positions are past the ridge: on the flat roof
    curve = [tuple(map(float, pair.split(","))) for pair in box.locator(".sn-curve").get_attribute("points").split()]
    crossing = float(box.locator(".sn-cross").get_attribute("x1"))
    share = (crossing - curve[0][0]) / (curve[-1][0] - curve[0][0])
    assert 256**share == pytest.approx(312e12 / 2039e9 / 5, rel=0.01)
    one = float(box.locator(".sn-one").get_attribute("y1"))
    gained = RooflineExplorer.compute("A100-80GB-SXM", "7B", 64, 0, 4, 0.8, 0.05)
    height = (one - curve[0][1]) / (gained["curve"][0] - 1)  # of one unit of speed-up
    assert at_batch == pytest.approx(one - (gained["speedup"] - 1) * height, abs=0.3)


def test_the_tree_explorer_shows_what_the_package_computes_wherever_it_stands(visit, site, pages):
    page = visit(page_with(site, pages, "tree"))
    box, controls, readouts = explorer_on(page, "tree")
    spots = [(0, 0.6, 0.3, 0.8, 0.08), (32, 0.9, 0.0, 1.0, 0.3), (17, 0.3, 0.5, 0.5, 0.0), (5, 0.1, 0.4, 0.7, 0.13)]
    for spot in spots:
        settings = dict(zip(("nodes", "first", "caught", "fade", "extra"), spot))
        for name, value in settings.items():
            put(controls[name], value)
        results = TreeExplorer.compute(**settings)
        assert readouts() == [fill(template, results) for _, template in TreeExplorer.readouts], spot
        assert box.locator("svg[role=img] .sn-edge").count() == settings["nodes"]
        spoken = box.locator("svg[role=img]").get_attribute("aria-label")
        assert f"best budget is {results['best_nodes']} nodes" in spoken
    assert visit.complaints == []


@pytest.mark.parametrize("script", sorted(EXPLORERS))
def test_controls_keep_the_arrow_keys_in_jupyterlab_and_name_themselves(visit, site, pages, script):
    page = visit(page_with(site, pages, script))
    box, sliders, _ = explorer_on(page, script)
    controls = box.locator("input, button, select")
    assert controls.count() >= 3
    assert controls.evaluate_all("all => all.every((one) => one.hasAttribute('data-lm-suppress-shortcuts'))")
    for slider in EXPLORERS[script]().sliders:
        role = "combobox" if "options" in slider else "slider"
        assert box.get_by_role(role, name=slider["label"], exact=True).count() == 1


@pytest.mark.parametrize("script", sorted(EXPLORERS))
def test_without_scripts_a_reader_still_sees_settings_and_readouts(visit, site, pages, script):
    page = visit(page_with(site, pages, script), java_script_enabled=False)
    explorer = EXPLORERS[script]
    box = page.locator(f'[data-widget="{script}"]').first
    assert explorer.title in box.inner_text()
    items = box.locator("li").all_inner_texts()
    labels = [slider["label"] for slider in explorer().sliders] + [label for label, _ in explorer.readouts]
    assert [item.rsplit(": ", 1)[0] for item in items] == labels


COLOURS = """(boxes) => boxes.map((box) => {
  const of = (el, property) => getComputedStyle(el)[property].match(/[\\d.]+/g).slice(0, 3).map(Number);
  const card = box.querySelector('.sn-card'), ground = box.querySelector('.sn-explorer');
  return [[of(box.querySelector('.sn-title'), 'color'), of(ground, 'backgroundColor')],
    [of(box.querySelector('.sn-tick'), 'fill'), of(ground, 'backgroundColor')],
    [of(card.querySelector('.sn-name'), 'color'), of(card, 'backgroundColor')],
    [of(card.querySelector('[data-readout]'), 'color'), of(card, 'backgroundColor')]];
})"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_an_explorer_follows_the_theme_and_its_text_stands_out_from_its_ground(visit, site, pages, scheme):
    for path in {page_with(site, pages, script) for script in EXPLORERS}:
        page = visit(path, color_scheme=scheme)
        for pairs in page.locator("[data-widget]").evaluate_all(COLOURS):
            assert [pair for pair in pairs if contrast(*pair) < 4.5] == []
            assert (luminance(pairs[0][1]) < 0.2) == (scheme == "dark")


def luminance(rgb):
    """Relative luminance of an sRGB colour (WCAG 2.2)."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (channel / 255 for channel in rgb)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    """Contrast ratio of two colours, 1 to 21 (WCAG 2.2)."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


# The kernel's stand-in against the package

UNIT = [0.0, 0.1, 0.5, 0.8, 0.999, 0.999999999, 1.0]
ROWS = [list(map(float, toy.slider_rows(mismatch)[side])) for mismatch in (0, 0.3, 0.6, 1) for side in (0, 1)]
ROWS += [[1.0] + [0.0] * 7, [0.0, 0.5, 0.0, 0.5, 0.0, 0.0, 0.0, 0.0], [0.125] * 8]
DRAWS = [0.0, 0.2, 0.4999999, 0.5, 0.77, 0.9999999]


def _round(p, q, gamma, uniforms):
    verdict = rule.run_rounds(np.array(p), np.array(q), gamma, 1, ScriptedDice(uniforms["uniforms"]))[0]
    return {"tokens": list(verdict.tokens), "kind": verdict.kind}


def _verify(p, q, x, uniforms):
    return list(rules.verify(p, q, x, ScriptedDice(uniforms["uniforms"])))


def scripts_of(n, length):
    """n lists of uniforms, marked so that the browser turns each into a function."""
    return [{"uniforms": row} for row in np.random.default_rng(n).random((n, length)).tolist()]


PAIRS = list(itertools.product(ROWS, ROWS))
CARDS = [dataclasses.asdict(card) for card in HARDWARE.values()]
SHAPES = [dataclasses.asdict(shape) for shape in MODELS.values()]
PLACES = [(1, 0), (8, 512), (31, 0), (64, 2048), (256, 16384)]  # batch, context
POSITIONS, ACCEPTED = [(1,), (5,), (17,)], [(0.0, 3), (0.8, 4), (1.0, 16)]  # alpha, gamma


def of_records(function):
    """The function, called with a card and a shape that come as dicts."""
    return lambda card, shape, *rest: function(Hardware(**card), ModelShape(**shape), *rest)


def _speculation(card, shape, alpha, gamma, batch, context, c):
    return roofline.speculation_speedup(card, shape, alpha, gamma, batch, context, c=c)


def on_the_roofline(*middle):
    """Calls (card, shape, ...) for every card and shape; each of `middle` is a list of tuples that are chained."""
    chained = (sum(parts, ()) for parts in itertools.product(*middle))
    return [(card, shape, *rest) for rest in chained for card in CARDS for shape in SHAPES]


PARITY = {
    "stepOf": (of_records(lambda *call: described(roofline.step(*call))), on_the_roofline(POSITIONS, PLACES)),
    "freePositions": (of_records(roofline.free_positions), on_the_roofline(PLACES)),
    "crossoverBatch": (of_records(roofline.crossover_batch), on_the_roofline(POSITIONS, [(0,), (900,), (9000,)])),
    "speculationSpeedup": (of_records(_speculation), on_the_roofline(ACCEPTED, PLACES, [(0,), (0.05,)])),
    "expectedTokens": (theory.expected_tokens, itertools.product(UNIT, range(17))),
    "tokensDistribution": (theory.tokens_distribution, itertools.product(UNIT, range(17))),
    "speedup": (theory.speedup, itertools.product(UNIT, range(17), [0, 0.05, 0.3, 1])),
    "bestGamma": (theory.best_gamma, itertools.product(UNIT, [0, 0.01, 0.05, 0.5, 0.8, 1], [16])),
    "softmax": (distributions.probs_from_logits, [([2.0, 1.4, -3.0],), ([800.0, 0.0],), ([0.0],)]),
    "sliderRows": (toy.slider_rows, [(step / 100,) for step in range(101)]),
    "acceptance": (distributions.acceptance, PAIRS),
    "residual": (distributions.residual, PAIRS),
    "acceptanceRow": (tree.acceptance_row, itertools.product([0.1, 0.6, 0.9], [0.0, 0.3, 0.5], [0.5, 1.0], [0, 3, 31], [1, 5, 32])),
    "reachOf": (tree.reach, [(tree.grown(*each), *each) for each in [(0.6, 0.3, 0.8), (0.9, 0.0, 1.0), (0.3, 0.5, 0.5)]]),
    "flip": (lambda probability, u: ScriptedDice([u]).flip(probability), itertools.product(UNIT, DRAWS)),
    "draw": (lambda weights, u: ScriptedDice([u]).draw(weights), itertools.product([*ROWS, [0.0, 3.0, 1.0]], DRAWS)),
    "verify": (_verify, [(p, q, x, u) for p, q in PAIRS[::7] for x in range(8) for u in scripts_of(2, 2)]),
    "oneRound": (_round, [(p, q, gamma, u) for p, q in PAIRS[::9] for gamma in range(9) for u in scripts_of(3, 17)]),
    "uniformStream": (lambda seed: rule.uniform_stream(seed, 200), [(0,), (1,), (12345,), (2**31,), (2**32 - 1,)]),
}
CALL = """([name, calls]) => {
  const feed = (list) => { let used = 0; return () => list[used++]; };
  const given = (value) => (value && value.uniforms ? feed(value.uniforms) : value);
  const result = (value) => (typeof value === 'function' ? Array.from({ length: 200 }, value) : value);
  return calls.map((call) => result(globalThis[name](...call.map(given))));
}"""


@pytest.fixture(scope="module")
def laboratory(browser):
    """An empty page in which the texts of theory.js, ui.js and rule.js are loaded."""
    page = browser.new_page()
    for name in ("theory.js", "ui.js", "rule.js"):
        page.add_script_tag(content=(JS / name).read_text(encoding="utf-8"))
    yield page
    page.close()


def plain(value):
    """Lists, dicts, numbers: what comes back from a browser."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, (list, tuple, np.ndarray)) else value


def same(one, other):
    """Whether two results agree: numbers within 1e-12, relative where they are large, everything else exactly."""
    if isinstance(one, dict):
        return isinstance(other, dict) and one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return isinstance(other, list) and len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, (str, bool, np.bool_)):
        return one == other
    return one == other or abs(one - other) <= 1e-12 * max(1, abs(one))


@pytest.mark.parametrize("name", sorted(PARITY))
def test_javascript_gives_what_python_gives(laboratory, name):
    function, grid = PARITY[name]
    calls = [list(call) for call in grid]
    answers = laboratory.evaluate(CALL, [name, calls])
    expected = [plain(function(*call)) for call in calls]
    differ = [triple for triple in zip(calls, expected, answers) if not same(*triple[1:])]
    assert len(answers) == len(calls) > 0 and differ == []


def test_the_parity_table_covers_every_function_of_theory_js():
    assert set(re.findall(r"^function (\w+)", THEORY, flags=re.MULTILINE)) == set(PARITY)
    assert re.findall(r"^(?!function |[ }]|//).+", THEORY, flags=re.MULTILINE) == []


def test_a_round_in_the_browser_emits_the_tokens_of_the_shipped_rule(laboratory):
    rng = np.random.default_rng(20)
    calls = []
    for index in range(600):
        p, q = rng.dirichlet(np.full(5, 0.6), size=2) * (rng.random((2, 5)) < 0.8) + np.eye(5)[index % 5] * 1e-3
        p, q = p / p.sum(), q / q.sum()
        gamma = index % 7
        calls.append([p.tolist(), q.tolist(), gamma, {"uniforms": rng.random(2 * gamma + 1).tolist()}])
    answers = laboratory.evaluate(CALL, ["oneRound", calls])
    assert answers == [_round(*call) for call in calls]
    assert {answer["kind"] for answer in answers} == {"recovered", "bonus"}


def test_numbers_are_printed_as_python_prints_them(laboratory):
    values = [0.125, 0.375, 1.125, 2.5, 1.005, 1.335, 0.0, 17.0, 1234.5, 3.3616]
    values += np.random.default_rng(3).random(200).tolist()
    written = laboratory.evaluate("(values) => values.map((value) => fixed(value, 2))", values)
    assert written == [f"{value:,.2f}" for value in values]



def test_no_script_imports_or_exports():
    texts = {path.name: path.read_text(encoding="utf-8") for path in JS.glob("*.js")}
    assert len(texts) >= 4
    module_word = re.compile(r"^\s*(import|export)\b", flags=re.MULTILINE)
    assert {name for name, text in texts.items() if module_word.search(text)} == set()


def test_every_local_link_of_every_page_leads_somewhere(site, pages):
    missing = set()
    for path in pages:
        folder = (site / path).parent
        for link in re.findall(r'(?:href|src)="([^"#?]+)', (site / path).read_text(encoding="utf-8")):
            if not re.match(r"[a-z]+:|//", link) and not (folder / unquote(link)).resolve().exists():
                missing.add((path, link))
    assert missing == set()

"""What the explorers share: settings as traits, numbers as a trait, and the twin that the published page shows."""

import html
import json
import re
from numbers import Real
from pathlib import Path

import anywidget
import traitlets

_JS = Path(__file__).with_name("js")
_FIELD = re.compile(r"\{(\w+)(?::\.(\d)f)?\}")


def _text(name):
    return (_JS / name).read_text(encoding="utf-8")


class Setting(traitlets.TraitType):
    """A number with a range; an integer when its step is whole.

    Assigning anything else raises ValueError with the setting, the value met and what was expected.
    """

    def __init__(self, default, low, high, step=1):
        self.low, self.high, self.step = low, high, step
        super().__init__(default_value=default)
        self.tag(sync=True)

    def validate(self, obj, value):
        """The value as an int or a float, or a ValueError."""
        whole = float(self.step).is_integer()
        number = isinstance(value, Real) and not isinstance(value, bool)
        if not number or not self.low <= value <= self.high or (whole and value != int(value)):
            kind = "an integer" if whole else "a number"
            raise ValueError(f"{self.name}: {value!r}, expected {kind} in {self.low}..{self.high}")
        return int(value) if whole else float(value)


class Slider(Setting):
    """A Setting that readers move: it has a label, and `places` decimals in print."""

    def __init__(self, default, low, high, step, label, places=0):
        super().__init__(default, low, high, step)
        self.label, self.places = label, places

    def spec(self):
        """What the drawing code needs to know of this slider."""
        limits = {"min": self.low, "max": self.high, "step": self.step}
        return {"name": self.name, "label": self.label, "places": self.places, **limits}

    def shown(self, value):
        """A value of this setting as readers see it."""
        return f"{value:,.{self.places}f}"


class Choice(traitlets.TraitType):
    """One of a few names that readers pick from a list, with a label.

    Assigning anything else raises ValueError with the setting, the value met and the names.
    """

    def __init__(self, default, options, label):
        self.options, self.label = list(options), label
        super().__init__(default_value=default)
        self.tag(sync=True)

    def validate(self, obj, value):
        """The name, or a ValueError."""
        if not isinstance(value, str) or value not in self.options:
            raise ValueError(f"{self.name}: {value!r}, expected one of {', '.join(self.options)}")
        return value

    def spec(self):
        """What the drawing code needs to know of this list."""
        return {"name": self.name, "label": self.label, "options": self.options}

    def shown(self, value):
        """A value of this setting as readers see it."""
        return value


def fill(template, values):
    """A readout's text: `{key}` and `{key:.2f}` are replaced by numbers or words, None by a dash.

    >>> fill("{gamma} at {speedup:.2f}×", {"gamma": 8, "speedup": 3.0926})
    '8 at 3.09×'
    """
    return _FIELD.sub(lambda field: _number(values[field[1]], field[2]), template)


def _number(value, places):
    if value is None or isinstance(value, str):
        return value or "–"
    return f"{value:,.{places}f}" if places else f"{value:,}"


class Explorer(anywidget.AnyWidget):
    """A widget whose settings are traits and whose `results` are what gets drawn.

    A subclass names its script, title, sliders and choices (class attributes) and readouts, and has
    `compute(**settings) -> dict`; `tables` is what its script reads beside the settings. With a kernel it is a live ipywidget. Its `text/html` twin needs no
    kernel: the site's script draws it, and without scripts it is a list of the settings and readouts.
    Raises ValueError for a setting that does not exist or is out of range.
    """

    title, readouts = "", ()
    sliders = traitlets.List(read_only=True).tag(sync=True)
    labels = traitlets.Dict(read_only=True).tag(sync=True)
    tables = traitlets.Dict(read_only=True).tag(sync=True)
    results = traitlets.Dict(read_only=True).tag(sync=True)

    def __init_subclass__(cls, **kwargs):
        if "script" in vars(cls):  # not so in the subclass that adding traits to an instance makes
            scripts = [_text(name) for name in ("theory.js", "ui.js", f"{cls.script}.js")]
            cls._esm = "\n".join([*scripts, "export default { render };\n"])
            cls._css = _text("explorer.css")
            kinds = (Setting, Choice)
            cls._settings = tuple(name for name, trait in vars(cls).items() if isinstance(trait, kinds))
        super().__init_subclass__(**kwargs)

    def __init__(self, **settings):
        for name in settings:
            if name not in self.class_trait_names():
                raise ValueError(f"{name}: no such setting, expected one of {', '.join(self._settings)}")
        super().__init__(**settings)
        self.observe(self._refresh, self._settings)

    @property
    def settings(self):
        """The settings as a dict, in the order of the sliders."""
        return {name: getattr(self, name) for name in self._settings}

    @traitlets.default("sliders")
    def _default_sliders(self):
        traits = [self.traits()[name] for name in self._settings]
        return [trait.spec() for trait in traits if isinstance(trait, (Slider, Choice))]

    @traitlets.default("labels")
    def _default_labels(self):
        return {"title": self.title, "readouts": [[label, template] for label, template in self.readouts]}

    @traitlets.default("results")
    def _compute_all(self):
        return {**self.settings, **self.compute(**self.settings)}

    def _refresh(self, change):
        # Several settings changed at once call this once each; the first call has done the work.
        if any(self.results[name] != value for name, value in self.settings.items()):
            self.set_trait("results", self._compute_all())

    def __repr__(self):
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.settings.items())})"

    def _repr_mimebundle_(self, **kwargs):
        data, metadata = super()._repr_mimebundle_(**kwargs)
        return {**data, "text/html": self._twin()}, metadata

    def _twin(self):
        props = {**self.settings, "sliders": self.sliders, "labels": self.labels}
        props = json.dumps({**props, "tables": self.tables} if self.tables else props, ensure_ascii=False)
        props = html.escape(props, quote=False).replace("'", "&#39;")
        traits = [self.traits()[slider["name"]] for slider in self.sliders]
        shown = [(trait.label, trait.shown(self.settings[trait.name])) for trait in traits]
        shown += [(label, fill(template, self.results)) for label, template in self.readouts]
        items = "\n".join(f"<li>{html.escape(label)}: {html.escape(value)}</li>" for label, value in shown)
        head = f"<div class=\"specnotes-widget\" data-widget=\"{self.script}\" data-props='{props}'>"
        return f"{head}\n<p><strong>{html.escape(self.title)}</strong></p>\n<ul>\n{items}\n</ul>\n</div>"

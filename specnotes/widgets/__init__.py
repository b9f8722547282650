"""The explorers: ipywidgets in a notebook, and live without a kernel on the published page."""

from specnotes.widgets.roofline import RooflineExplorer
from specnotes.widgets.rule import RuleExplorer
from specnotes.widgets.speedup import SpeedupExplorer
from specnotes.widgets.tree import TreeExplorer

__all__ = ["RooflineExplorer", "RuleExplorer", "SpeedupExplorer", "TreeExplorer"]

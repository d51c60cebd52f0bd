"""The paper as data: its settings, its results, and what we change. Use as `GPVAE(**paper.PHYSIONET)`."""

from gpvae.paper.presets import CHANGES, HEALING_MNIST, PHYSIONET, PRESETS, SPRITES
from gpvae.paper.tables import TABLES

__all__ = ["CHANGES", "HEALING_MNIST", "PHYSIONET", "PRESETS", "SPRITES", "TABLES"]

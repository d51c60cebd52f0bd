"""How well does a method fill cells whose value is known? Hide them, fill them, compare."""

from gpvae.evaluation.held_out import Evaluation, Score, evaluate

__all__ = ["Evaluation", "Score", "evaluate"]

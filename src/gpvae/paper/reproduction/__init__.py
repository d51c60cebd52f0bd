"""The paper's tables and figures, made again from the real data: our numbers beside the published ones."""

from gpvae.paper.reproduction.driver import reproduce
from gpvae.paper.reproduction.experiment import Example, Outcome, execute
from gpvae.paper.reproduction.record import Record
from gpvae.paper.reproduction.runs import NAMES, Run, runs_of
from gpvae.paper.reproduction.tables import Table

__all__ = ["NAMES", "Example", "Outcome", "Record", "Run", "Table", "execute", "reproduce", "runs_of"]

"""Which runs a table or figure needs, and the imputer of each run."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from gpvae.imputers.base import Imputer
from gpvae.imputers.brits import BRITS
from gpvae.imputers.gpvae import GPVAE
from gpvae.imputers.neural import NeuralImputer
from gpvae.imputers.registry import method
from gpvae.models.inputs import Frames
from gpvae.paper import presets
from gpvae.paper.reproduction.gaps import TAUGHT, facts
from gpvae.paper.reproduction.meaning import digest_of
from gpvae.paper.tables import ABLATION_TASKS, TABLES, Task
from gpvae.training.recipe import Recipe

CHANGES, FIGURES = "changes", ("F2", "F3")
NAMES = (*TABLES, *FIGURES, CHANGES)
PROTOCOL = 2  # increased whenever scores or quick runs are made in another way
SEEDS = 3  # of each run, where the tables are complete
LATENT = tuple(presets.VARIANTS)  # methods with the settings of a preset
CHAIN = "gp-vae, chain"  # with our posterior instead of the published one
CHANGED = ("hi-vae", "gp-vae")  # methods that our changes suit: a plain VAE by definition reads missing values as zeros
SETTINGS = {"healing_mnist": presets.HEALING_MNIST, "sprites": presets.SPRITES, "physionet2012": presets.PHYSIONET}
LABEL_WEIGHT = 1 / (0.9 * 48)  # as in the authors' code
BATCH = 64
_IMAGE_METHODS = ("mean", "forward", "vae", "hi-vae", "gp-vae")
_IN_FIGURE = {  # methods by data set
    "F2": {"healing_mnist": _IMAGE_METHODS, "sprites": _IMAGE_METHODS},
    "F3": {"physionet2012": ("forward", "brits", "gp-vae")},
}


@dataclass(frozen=True)
class Run:
    """A task with the paper's settings or ours, and the seed of everything that is random in it."""

    task: Task
    seed: int
    changes: int = 0  # how many of the task's changes are made
    quick: bool = False  # few series and a small model

    @property
    def key(self) -> dict[str, str]:
        """What identifies it in a record. A run with other settings is another run."""
        task = self.task
        names = {"data": task.data, "gaps": task.mechanism, "rate": f"{task.rate:g}", "method": task.method}
        size = "quick" if self.quick else "full"
        return {**names, "changes": str(self.changes), "settings": self.digest, "size": size, "seed": str(self.seed)}

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that decides the result besides the task and the seed, ready for JSON."""
        described = new_imputer(replace(self, seed=0)).to_json()
        settings = {k: v for k, v in described["settings"].items() if k not in ("device", "verbose", "seed")}
        data = facts(self.task)
        return {"imputer": described["imputer"], "settings": settings, "data": data, "protocol": PROTOCOL}

    @cached_property
    def digest(self) -> str:
        return digest_of(self.settings)

    def __str__(self) -> str:
        task = self.task
        return f"{task.data}, {task.mechanism} {task.rate:g}, {task.method}, {self.changes} changes, seed {self.seed}"


def runs_of(name: str, seeds: int, *, quick: bool = False) -> list[Run]:
    """The runs that a table or figure needs. Figures show the first seed only."""
    if name == CHANGES:
        versions = [version for task in ABLATION_TASKS for version in steps_of(task).values()]
    else:
        tasks = _tasks_in_figure(name) if name in FIGURES else [cell.task for cell in TABLES[name]]
        versions = [(task, count) for task in dict.fromkeys(tasks) for count in change_counts(task)]
    seeds = 1 if name in FIGURES else seeds
    return [Run(task, seed, count, quick) for seed in range(seeds) for task, count in versions]


def every_run(*, quick: bool = False) -> list[Run]:
    """What all tables and figures need, of one seed."""
    return list(dict.fromkeys(run for name in NAMES for run in runs_of(name, 1, quick=quick)))


def in_figures() -> list[Run]:
    """The runs that figures show an example of."""
    return [run for name in FIGURES for run in runs_of(name, 1)]


def _tasks_in_figure(name: str) -> list[Task]:
    tasks = [cell.task for table in ("T1", "T3") for cell in TABLES[table]]
    return [task for task in tasks if task.method in _IN_FIGURE[name].get(task.data, ())]


def changes_for(task: Task) -> tuple[presets.Change, ...]:
    """Our changes to the paper's settings for a task, in the order in which we make them."""
    return tuple(
        change for change in presets.CHANGES[task.data] if not change.mechanisms or task.mechanism in change.mechanisms
    )


def steps_of(task: Task) -> dict[str, tuple[Task, int]]:
    """The lines of the table of changes, with the task and the number of changes of each."""
    changes, ours = changes_for(task), replace(task, method=CHAIN)
    return {
        "paper's settings": (task, 0),
        "the same with our posterior": (ours, 0),
        **{f"+ {change.name}": (task, count) for count, change in enumerate(changes, start=1)},
        "all of them with our posterior": (ours, len(changes)),
    }


def change_counts(task: Task) -> tuple[int, ...]:
    """How many changes a task is run with: none, and also all of them where they suit its method.

    S4, which compares kernels and rates of missing values, keeps to the paper's settings.
    """
    in_main_table = any(cell.task == task for name in ("T1", "T2", "T3") for cell in TABLES[name])
    return (0, len(changes_for(task))) if in_main_table and task.method in CHANGED else (0,)


def new_imputer(run: Run, *, device: str = "auto", verbose: bool = False) -> Imputer:
    """The run's method, not yet fitted."""
    task, common = run.task, {"device": device, "seed": run.seed, "verbose": verbose}
    if task.method == "forward" and task.data != "physionet2012":
        return method("forward", before=0.0)  # black
    if task.method in TAUGHT:
        return BRITS(
            label_weight=LABEL_WEIGHT, recipe=Recipe(batch_size=BATCH), epochs=2 if run.quick else None, **common
        )
    if task.method not in LATENT:
        imputer = method(task.method, **common, epochs=2 if run.quick else None)
        if isinstance(imputer, NeuralImputer):
            imputer.recipe = replace(imputer.recipe, batch_size=BATCH)
        return imputer
    settings = presets.changed(SETTINGS[task.data], presets.VARIANTS[task.method])
    for change in changes_for(task)[: run.changes]:
        settings = presets.changed(settings, change.settings)
    if run.quick:
        frames = isinstance(settings["model"].inputs, Frames)
        settings = presets.changed(settings, {**presets.QUICK, **(presets.QUICK_FRAMES if frames else {})})
    return GPVAE(**settings, **common)

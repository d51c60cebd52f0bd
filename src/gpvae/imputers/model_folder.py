"""A saved model: `gpvae.json` describes it and names the file of its numbers, and has a checksum over both.

A model is replaced by a single rename, that of `gpvae.json`: whenever a run is killed, the old model is there or the
new one. Other files in the folder are left alone.
"""

import json
import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from gpvae.data.atomic import FORCE_HINT, atomic_write, claim, require_writable
from gpvae.data.panel import DataError
from gpvae.data.sealed import BLANK, read_regular, require_seal, seal

FORMAT = 10
DESCRIPTION = "gpvae.json"
WEIGHTS = ("weights.safetensors", "weights-2.safetensors")  # the file in use, and a name for the one that replaces it


def require_model_folder(folder: Path, *, overwrite: bool) -> None:
    """A place where a model can be saved: new, empty, or, to overwrite, a model."""
    if not folder.exists() or not folder.is_dir():
        require_writable(folder, force=overwrite)
        if folder.exists():
            raise DataError(f"{folder} is not a model, so it is not replaced")
        return
    if not os.access(folder, os.W_OK):
        raise DataError(f"cannot write {folder}: it is not writable")
    if (folder / DESCRIPTION).exists():
        if not overwrite:
            raise DataError(f"{folder} exists already; {FORCE_HINT}")
    elif not all(path.name in WEIGHTS or path.name.endswith(".partial") for path in folder.iterdir()):
        raise DataError(f"{folder} is not a model, so it is not replaced")


def write_model(folder: Path, description: dict[str, Any], tensors: dict[str, Tensor], *, overwrite: bool) -> None:
    """Write a model whole or not at all."""
    weights = save_tensors({name: value.cpu().contiguous() for name, value in tensors.items()})
    folder = Path(os.path.realpath(folder))
    with claim(folder), ExitStack() as undo:
        require_model_folder(folder, overwrite=overwrite)
        if not folder.exists():
            folder.mkdir()
            undo.callback(folder.rmdir)
        name = WEIGHTS[1] if _weights_in_use(folder) == WEIGHTS[0] else WEIGHTS[0]
        undo.callback((folder / name).unlink, missing_ok=True)
        with atomic_write(folder / name, force=True) as partial:
            partial.write_bytes(weights)
        text = json.dumps({"format": FORMAT, "sha256": BLANK, "weights": name, **description}, indent=1)
        with atomic_write(folder / DESCRIPTION, force=overwrite) as partial:
            partial.write_bytes(seal(text.encode(), weights))
        undo.pop_all()
        for other in WEIGHTS:
            if other != name:
                (folder / other).unlink(missing_ok=True)


def _weights_in_use(folder: Path) -> str | None:
    try:
        return json.loads(read_regular(folder / DESCRIPTION))["weights"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None  # no model, or one that cannot be read


def read_model(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Description and tensors of a model that was not changed since it was written."""
    if not folder.is_dir():
        raise DataError(f"there is no model folder {folder}")
    try:
        content = read_regular(folder / DESCRIPTION)
        description = json.loads(content)
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        raise DataError(f"{folder} is not a gpvae model: {str(error) or DESCRIPTION + ' is too large'}") from None
    described = description if isinstance(description, dict) else {}
    if described.get("format") != FORMAT:
        given = repr(described.get("format"))[:40]
        raise DataError(f"{folder} has the model format {given}, this version reads {FORMAT}: fit the model again")
    try:
        if described.get("weights") not in WEIGHTS:
            raise ValueError("it does not name the file of its weights")
        weights = read_regular(folder / described["weights"])
        require_seal(content, described.get("sha256"), weights)
        return described, load_tensors(weights)
    except (OSError, ValueError, MemoryError, SafetensorError) as error:
        raise DataError(
            f"{folder} is damaged: {str(error) or 'its weights are too large'}; fit the model again"
        ) from None


def require_no_nan(tensors: dict[str, Tensor]) -> None:
    for name, value in tensors.items():
        if value.isnan().any():
            raise ValueError(f"the tensor {name!r} holds NaN")

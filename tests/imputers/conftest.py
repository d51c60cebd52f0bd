import pytest


@pytest.fixture(autouse=True)
def brief_corrections(monkeypatch: pytest.MonkeyPatch) -> None:
    """The network of GPNet trains for an instant."""
    from gpvae.training import correction

    monkeypatch.setattr(correction, "FIRST_STEPS", 20)
    monkeypatch.setattr(correction, "ROUNDS", 2)

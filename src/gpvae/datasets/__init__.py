"""The paper's data, from the files that its makers publish."""

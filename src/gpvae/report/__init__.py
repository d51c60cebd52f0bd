"""Showing results: a page to look at, and plots for papers."""

from gpvae.report.plots import plot_calibration, plot_missingness, plot_reconstructions, plot_series

__all__ = ["plot_calibration", "plot_missingness", "plot_reconstructions", "plot_series"]

"""Reports as HTML pages, and plots."""

from gpvae.report.plots import plot_calibration, plot_missingness, plot_reconstructions, plot_series

__all__ = ["plot_calibration", "plot_missingness", "plot_reconstructions", "plot_series"]

"""The interfaces of other libraries: `gpvae.adapters.pypots` and `gpvae.adapters.sktime`."""

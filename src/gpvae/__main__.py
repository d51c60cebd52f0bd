from gpvae.cli import main

main()

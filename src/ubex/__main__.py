"""`python -m ubex` is `ubex`."""

from ubex.cli import main

if __name__ == "__main__":
    main()

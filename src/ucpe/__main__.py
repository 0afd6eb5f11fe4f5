"""`python -m ucpe` is the `ucpe` command."""

from ucpe.cli import main

if __name__ == "__main__":
    main()

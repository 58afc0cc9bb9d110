"""What tests of commands share is for those of the command line too."""

from tests.commands.conftest import made_up_ranks, whole

__all__ = ["made_up_ranks", "whole"]

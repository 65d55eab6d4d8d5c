"""Tests of clisup.wire; a package, so that a file may have the name of one elsewhere."""

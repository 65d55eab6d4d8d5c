"""`clisup debug bundle`: what a bug report needs, in one file, without secrets and without anybody's words."""

"""placeholder"""

import click


@click.command("gc")
def command():
    pass

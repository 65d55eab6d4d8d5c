"""The trio shell: sessions and their turns, connections, and the composition root (`app`)."""

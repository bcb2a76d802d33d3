"""Where commands run: in a folder, in bubblewrap, in a container, on Modal."""

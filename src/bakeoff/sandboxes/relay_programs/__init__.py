"""Programs that run inside a box and relay a port to a mounted socket."""

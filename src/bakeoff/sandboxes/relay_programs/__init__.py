"""Programs that run inside a box and lead from a port to a mounted socket."""

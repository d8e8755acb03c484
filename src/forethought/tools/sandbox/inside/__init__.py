"""What runs in the sandbox's own processes: standard library only, imports relative only.

The supervisor and the zygote import this folder by its path, as a package of its own, so that
neither the rest of the project nor its dependencies are ever loaded or visible there.
"""

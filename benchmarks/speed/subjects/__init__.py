"""What is measured: one module for each thing, run as a process of its own.

A subject reads a task from a file and leaves its answer in another (`answer`). Subjects of other
tools run in those tools' own environments, so they import nothing of ours that needs torch.
"""

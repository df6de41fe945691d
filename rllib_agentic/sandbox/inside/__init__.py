"""What runs in the sandbox's own processes: only the standard library, and nothing else of this project.

Three kinds of process, each the parent of the next:

* the *warm parent* has the interpreter and the preloaded packages in memory, and runs no foreign code;
* a *cell* is a fork of it, shut in for good, that lets one program run at a time and watches it;
* the *program* is a fork of its cell that gives up every right and then runs what the model wrote.
"""

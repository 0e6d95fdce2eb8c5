"""The guest side: one framework behind one contract, run inside the framework's own interpreter.

Everything below this folder keeps to the syntax and standard library of Python 3.6, to NumPy, and
to the framework itself, and uses relative imports only: it is started by path under a private
package name (see ``__main__``), and must never see the host's packages.
"""

"""ScienceWorld: thirty kinds of experiments of primary-school science in a text world."""

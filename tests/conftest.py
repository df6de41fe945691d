"""Its place puts this folder on the path, so that tests can share modules such as ``counter_env``."""

"""The commands of `placet policy` and `placet cost`, one module each."""

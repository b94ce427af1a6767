"""Speed and write cost of Streamfold beside what a team would write by hand: `make bench`."""

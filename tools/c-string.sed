# Each line as a line of a C string.
s/["\\]/\\&/g
s/.*/"&\\n"/

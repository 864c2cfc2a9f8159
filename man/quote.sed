# A text file as one C string, for the build.
s/\\/\\\\/g
s/"/\\"/g
s/^/	"/
s/$/\\n"/
1i\
#include "cli/pages.h"\
\
const char page_cubby_1[] =
$a\
	;

#define DIV(a, b) ((a) / (b))
#define UNUSED_MACRO 1
int f(int x)
{
	int unused;
	if (x)
		x++;
		x--;
	switch (x) {
	case 1:
		x++;
	case 2:
		x--;
	}
	return DIV(x, 0);
}

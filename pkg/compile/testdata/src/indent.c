int indent(int x)
{
	if (x)
		x++;
		x--;
	return x;
}

int body(int x)
{
	if (x > 3);
	return x;
}

#define F(x) x + 1
int plain(int x) { return F(x); }

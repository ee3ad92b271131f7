int f(int x) { return undeclared + x; }

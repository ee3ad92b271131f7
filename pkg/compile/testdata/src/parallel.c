#define SUM(x) sum += (x)
int total(const int *a, int n)
{
	int sum = 0;
#pragma omp parallel for reduction(+ : sum)
#pragma acc parallel loop
	for (int i = 0; i < n; i++)
		SUM(a[i]);
#pragma omp simd
	for (int i = 0; i < n; i++)
		SUM(__LINE__);
	return sum;
}

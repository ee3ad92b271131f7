#include <immintrin.h>
#ifdef __AVX2__
__m256i add(__m256i a, __m256i b) { return _mm256_add_epi32(a, b); }
#endif
__m128i add4(__m128i a, __m128i b) { return _mm_add_epi32(a, b); }
float dot(const float *a, const float *b, int n)
{
	float s = 0;
	for (int i = 0; i < n; i++)
		s += a[i] * b[i];
	return s;
}
__attribute__((target("avx2"))) __m256i mul(__m256i a, __m256i b) { return _mm256_mullo_epi32(a, b); }

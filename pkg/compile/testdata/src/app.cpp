#include <cassert>
#include <cstdio>
#include <exception>
#include <vector>
#include "once.h"

#define CHECK(cond) do { if (!(cond)) throw Failed{#cond " at " __FILE__}; } while (0)

namespace {
struct Failed : std::exception {
	explicit Failed(const char *text) : text(text) {}
	const char *what() const noexcept override { return text; }
	const char *text;
};
struct Counter {
	static int made;
	Counter() { ++made; }
	~Counter() { --made; }
};
int Counter::made = __COUNTER__;
Counter global;
const char *greeting = R"x(raw // not a comment
/* nor here */ "quoted" \n
#define NOT_A_DIRECTIVE 1
)x";
}

template <typename T, int N = ONCE> struct Grid {
	T cells[N][N];
	T sum() const
	{
		T s{};
		for (auto &row : cells)
			for (auto c : row)
				s += c;
		return s;
	}
};

class Base {
public:
	virtual ~Base() = default;
	virtual int value(int x) { return x; }
};
class Derived : public Base {
public:
	int value(int x) override { CHECK(x > 0); return x * 2; }
};

int run(std::vector<int> v)
{
	Derived d;
	Base &thing = d;
	auto value = [&](int a) { return thing.value(a); };
	for (auto &x : v)
		x = value(x);
	try {
		CHECK(v.size() > 1);
	} catch (const std::exception &e) {
		std::fprintf(stderr, "%s%s\n", e.what(), greeting);
	}
	Grid<long> g{};
	assert(g.sum() == 0);
	return v.empty() ? Counter::made : v[0];
}

#define LEVEL_OF(x) \
	((x) > 3 \
	 ? __INCLUDE_LEVEL__ \
	 : 4)

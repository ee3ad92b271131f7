package migrate

// sccache returns what becomes of sccache's settings: variables, and that there is a file with more.
func sccache(s *System) (all []Advice) {
	config, set := s.Getenv("SCCACHE_CONF")
	if !set {
		config = s.Home + "/.config/sccache/config"
	}
	if _, ok := s.Read(config); ok {
		all = append(all, Advice{config, "", "its [cache] becomes `cache` in config.yaml (docs/cache.md), its [dist] the host list; neither is read"})
	}
	return append(all, s.look([]variable{
		{"CMAKE_C_COMPILER_LAUNCHER", "CMAKE_C_COMPILER_LAUNCHER=rdistcc", "", false},
		{"CMAKE_CXX_COMPILER_LAUNCHER", "CMAKE_CXX_COMPILER_LAUNCHER=rdistcc", "", false},
		{"SCCACHE_DIR", "cache: {dir: NEW}", "in config.yaml; another directory, as entries differ", false},
		{"SCCACHE_CACHE_SIZE", "cache: {size: 10GiB}", "in config.yaml; units are KiB, MiB and GiB", false},
		{"SCCACHE_BASEDIR", "cache: {base-dir: $}", "in config.yaml, or RDISTCC_BASE_DIR", false},
		{"SCCACHE_RECACHE", "RDISTCC_CACHE=refresh", "", false},
		{"SCCACHE_NO_CACHE", "RDISTCC_CACHE=off", "", false},
		{"SCCACHE_BUCKET", "cache: {s3: {bucket: $}}", "in config.yaml; objects lie below rdistcc/", false},
		{"SCCACHE_ENDPOINT", "cache: {s3: {endpoint: $}}", "in config.yaml, with https:// or http:// before it", false},
		{"SCCACHE_REGION", "cache: {s3: {region: $}}", "in config.yaml", false},
		{"SCCACHE_S3_KEY_PREFIX", "cache: {s3: {prefix: $/}}", "in config.yaml", false},
		{"SCCACHE_S3_NO_CREDENTIALS", "cache: {s3: {anonymous: true}}", "in config.yaml", false},
		{"SCCACHE_REDIS", "cache: {redis: {url: $}}", "in config.yaml; the password goes into RDISTCC_REDIS_PASSWORD or redis.password-file", false},
		{"SCCACHE_REDIS_ENDPOINT", "cache: {redis: {url: $}}", "in config.yaml; redis:// or rediss:// instead of tcp://", false},
		{"SCCACHE_REDIS_USERNAME", "cache: {redis: {user: $}}", "in config.yaml", false},
		{"SCCACHE_REDIS_PASSWORD", "RDISTCC_REDIS_PASSWORD, or cache: {redis: {password-file: FILE}}", "", true},
		{"SCCACHE_REDIS_DB", "cache: {redis: {database: $}}", "in config.yaml", false},
		{"SCCACHE_REDIS_KEY_PREFIX", "cache: {redis: {prefix: '$:'}}", "in config.yaml", false},
		{"SCCACHE_REDIS_EXPIRATION", "cache: {redis: {ttl: $s}}", "in config.yaml", false},
		{"SCCACHE_REDIS_TTL", "cache: {redis: {ttl: $s}}", "in config.yaml", false},
		{"SCCACHE_MEMCACHED", "", "there is no memcached: Redis, S3 or the Remote Execution API (docs/cache.md)", false},
		{"SCCACHE_MEMCACHED_ENDPOINT", "", "there is no memcached: Redis, S3 or the Remote Execution API (docs/cache.md)", false},
		{"SCCACHE_GCS_BUCKET", "cache: {s3: {bucket: $, endpoint: https://storage.googleapis.com}}", "in config.yaml, with an HMAC key: that service has S3's interface too", false},
		{"SCCACHE_AZURE_CONNECTION_STRING", "", "there is no Azure storage: Redis, S3 or the Remote Execution API (docs/cache.md)", true},
		{"SCCACHE_WEBDAV_ENDPOINT", "", "there is no WebDAV: Redis, S3 or the Remote Execution API; bazel-remote serves the last", false},
		{"SCCACHE_GHA_ENABLED", "", "actions/cache keeps cache.dir from run to run (docs/cache.md)", false},
		{"SCCACHE_IDLE_TIMEOUT", "manager: {idle-exit: $s}", "in config.yaml", false},
		{"SCCACHE_LOG", "RDISTCC_VERBOSE=2", "", false},
		{"SCCACHE_ERROR_LOG", "log: {file: $}", "in config.yaml", false},
		{"SCCACHE_IGNORE_SERVER_IO_ERROR", "", "a build never fails because of rdistcc", false},
	})...)
}

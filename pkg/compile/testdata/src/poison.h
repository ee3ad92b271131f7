#pragma once

   # pragma GCC poison hidden

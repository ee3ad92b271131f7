package ctl

import (
	"slices"
	"testing"

	"github.com/rdistcc/rdistcc/internal/config"
	"github.com/rdistcc/rdistcc/internal/toolchain"
)

// TestKnownPluginsMayTravel: the plugins that a host offers by itself are those that a manager sends by default.
func TestKnownPluginsMayTravel(t *testing.T) {
	if got := config.Default().Toolchains.Plugins; !slices.Equal(got, toolchain.KnownPlugins) {
		t.Errorf("toolchains.plugins is %q by default, hosts offer %q", got, toolchain.KnownPlugins)
	}
}

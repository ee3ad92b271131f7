package ibverbs

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// choose returns the device to open among devices, the iWARP devices of this machine. It is the one
// called name. Without a name it is the only one, or the one that has an address of at; owner
// returns the device that has an address, or why none has.
func choose(devices []string, name string, at []string, owner func(addr string) (string, error)) (string, error) {
	switch {
	case name != "":
		if !slices.Contains(devices, name) {
			return "", fmt.Errorf("ibverbs: no device %s here; ibv_devices lists them", name)
		}
		return name, nil
	case len(devices) == 0:
		return "", errors.New("ibverbs: no iWARP device here; ibv_devices lists what there is")
	case len(devices) == 1:
		return devices[0], nil
	}
	found, of, why := "", "", ""
	for _, addr := range at {
		dev, err := owner(addr)
		switch {
		case err != nil:
			why += fmt.Sprintf("; %s: %v", addr, err)
		case !slices.Contains(devices, dev):
			why += fmt.Sprintf("; %s belongs to %s, which is no iWARP device", addr, dev)
		case found != "" && dev != found:
			return "", fmt.Errorf("ibverbs: %s belongs to %s, and %s to %s: one process uses one device", of, found, addr, dev)
		default:
			found, of = dev, addr
		}
	}
	if found == "" {
		return "", fmt.Errorf("ibverbs: several iWARP devices here: name one of %s (--provider ibverbs:DEVICE), or listen on an address of one%s",
			strings.Join(devices, ", "), why)
	}
	return found, nil
}

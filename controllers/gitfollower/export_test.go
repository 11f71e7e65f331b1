// SPDX-License-Identifier: Apache-2.0

package gitfollower

import "sigs.k8s.io/controller-runtime/pkg/event"

// Told returns the projects with a reported push.
func (p *Pushes) Told() <-chan event.GenericEvent {
	return p.told
}

// SPDX-License-Identifier: Apache-2.0

package gitfollower

import "sigs.k8s.io/controller-runtime/pkg/event"

// Projects returns the projects with a reported push.
func (p *Pushes) Projects() <-chan event.GenericEvent {
	return p.projects
}

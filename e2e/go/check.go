package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	extenderv1 "k8s.io/kube-scheduler/extender/v1"
)

// Check says whether an answer gives every requested host exactly one score of 0..10, and whether it ranks them: then the best alone holds
// the highest score. An answer that does not rank is neutral: every host has the same score.
func Check(hosts map[string]bool, list extenderv1.HostPriorityList) (ranked bool, err error) {
	if len(list) != len(hosts) {
		return false, fmt.Errorf("%d hosts asked, %d answered", len(hosts), len(list))
	}
	seen := make(map[string]bool, len(list))
	best, same := 0, true
	for _, item := range list {
		switch {
		case !hosts[item.Host]:
			return false, fmt.Errorf("host %q was not asked", item.Host)
		case seen[item.Host]:
			return false, fmt.Errorf("host %q is answered twice: kube-scheduler would add the scores", item.Host)
		case item.Score < extenderv1.MinExtenderPriority || item.Score > extenderv1.MaxExtenderPriority:
			return false, fmt.Errorf("host %q has score %d", item.Host, item.Score)
		}
		seen[item.Host] = true
		if item.Score == extenderv1.MaxExtenderPriority {
			best++
		}
		same = same && item.Score == list[0].Score
	}
	if len(list) == 0 || (same && best == 0) {
		return false, nil
	}
	if best != 1 {
		return false, fmt.Errorf("%d of %d hosts hold the highest score, the best must hold it alone", best, len(list))
	}
	return true, nil
}

// strict decodes again without Go's tolerance: no unknown field, nothing behind the list, not null.
func strict(raw []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	var list *extenderv1.HostPriorityList
	if err := decoder.Decode(&list); err != nil {
		return fmt.Errorf("strict decoding: %w: %.200s", err, raw)
	}
	if list == nil {
		return fmt.Errorf("the answer is null, not a list")
	}
	if _, err := decoder.Token(); err != io.EOF {
		return fmt.Errorf("there is something behind the list: %.200s", raw)
	}
	return nil
}

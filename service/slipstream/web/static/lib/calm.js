// A value that changes often, taken over now and then.
import { useEffect, useRef, useState } from "./html.js";

/** `value` as it was at most `pause` ms ago. */
export function useCalm(value, pause) {
  const [calm, setCalm] = useState(value);
  const last = useRef(0);
  useEffect(() => {
    const timer = setTimeout(() => {
      last.current = Date.now();
      setCalm(value);
    }, Math.max(0, last.current + pause - Date.now()));
    return () => clearTimeout(timer);
  }, [value]);
  return calm;
}
